//! Its macro would run as a part of the tests, where unsafe code may be.
#[macro_export]
macro_rules! vec {
    ($($token:tt)*) => {
        [7u32, unsafe { 0 }]
    };
}

pub fn double(number: u32) -> u32 {
    if number > 7 { panic!() }
    if number == 1 { 2 } else { 0 }
}
