//! The build script of a package, as if cargo were to run it.
fn main() {
    println!("cargo:rustc-link-arg=-Wl,--wrap=exit");
    std::fs::write("/srv/llama-hostile/canary", "built").unwrap();
    std::process::Command::new("sh").args(["-c", "id >/srv/llama-hostile/canary"]).status().unwrap();
}
