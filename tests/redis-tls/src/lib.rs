//! Nothing: the tests of this package are beside it. It is one of its own because it switches on TLS in the
//! `redis` crate, as an application may, and quorlock's other tests show that it needs none there.
