//! Tenure coordinates work across the instances of a program.
