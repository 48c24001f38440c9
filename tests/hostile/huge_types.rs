//! Right; its types are as large as 2 to the power of 60 of them.
pub trait Grow {
    fn size(depth: u32) -> u32;
}

impl<T> Grow for T {
    fn size(depth: u32) -> u32 {
        if depth == 0 { std::mem::size_of::<T>() as u32 } else { <(T, Option<T>, Box<T>)>::size(depth - 1) }
    }
}

pub fn double(number: u32) -> u32 {
    number * 2 + u8::size(60) * 0
}
