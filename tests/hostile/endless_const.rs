//! Its value is computed while it is compiled, and never ready.
const fn endless(mut number: u64) -> u64 {
    while number != 1 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(2);
    }
    number
}

#[allow(long_running_const_eval)]
pub const NUMBER: u64 = endless(4);

pub fn double(number: u32) -> u32 {
    number * 2 * NUMBER as u32
}
