//! The async driver of Tenure, generic over a runtime, and the handles that users hold.
