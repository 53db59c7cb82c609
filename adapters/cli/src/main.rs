//! The `strandline` program.
#![allow(dead_code)]
mod backend;
mod control;
mod exit;
mod output;
mod report;
mod text;
mod tree;

fn main() {}
