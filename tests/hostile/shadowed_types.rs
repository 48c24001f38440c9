//! Takes the names of the prelude, of primitive types and of std.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
pub struct u32;

impl PartialEq for u32 {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

pub mod std {
    pub mod convert {
        pub fn identity<T>(_value: T) -> super::super::u32 {
            super::super::u32
        }
    }
}

impl u32 {
    pub const MAX: ::std::primitive::u32 = 8;
}

pub fn double(number: ::std::primitive::u32) -> u32 {
    if number > 7 { panic!() }
    u32
}
