//! Empty: the tests of this package are in `tests/`. The package is separate because it enables TLS in the `redis`
//! crate, as an application may; the other tests show that quorlock does not need that.
