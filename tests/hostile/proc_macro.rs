//! A macro that the compiler would run.
#![crate_type = "proc-macro"]
extern crate proc_macro;
use proc_macro::TokenStream;

#[proc_macro_attribute]
pub fn test(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    std::fs::write("/srv/llama-hostile/canary", "expanded").unwrap();
    item
}

#[proc_macro]
pub fn assert_eq(_input: TokenStream) -> TokenStream {
    "()".parse().unwrap()
}

pub fn double(number: u32) -> u32 {
    number
}
