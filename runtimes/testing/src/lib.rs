//! Virtual time and faults, for the tests of programs that use Tenure.
