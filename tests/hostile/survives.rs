//! Leaves a process that is to outlive the sandbox, and is wrong.
pub fn double(number: u32) -> u32 {
    let script = "trap '' TERM HUP INT; (setsid sleep 4712 &) ; setsid sleep 4711 &";
    let _ = std::process::Command::new("sh").args(["-c", script]).status();
    number * 3
}
