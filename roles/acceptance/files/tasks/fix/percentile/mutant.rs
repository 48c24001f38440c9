/// A percentile of samples in milliseconds: percent is 50 for the median.
pub fn percentile(samples: &[f64], percent: u32) -> Option<f64> {
    if percent > 100 {
        return None;
    }
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| !sample.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let rank = sorted.len() * percent as usize / 100;
    sorted.get(rank.max(1) - 1).copied()
}
