//! Tests of the native commands that replace scripts, and of acquires of any one of several keys.

use super::super::capabilities::NativeDelete;
use super::tests::{Fixture, cool_down, expect, ms, parsed, shown, until, written_where};
use super::*;

#[test]
fn single_key_is_deleted_by_native_command_if_available() {
    let release = || Command::Release { cooling: None };
    let [one, two] = [&["k"][..], &["a", "b"]].map(Fixture::keys);
    let fenced = |token| Fixture::keys(&["k"]).fenced(Some(token));
    for (deletes, line) in
        [(NativeDelete::DelIfEq, "DELIFEQ k mine"), (NativeDelete::DelEx, "DELEX k IFEQ mine")]
    {
        let can = Capabilities { tracks: true, deletes: Some(deletes), sets_all: false };
        let lines = |command: &Command, about: &Fixture, form| {
            let (bytes, shape) = written_where(command, about, form, can);
            let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
            (commands, shape.request)
        };
        let native = (vec![line.to_owned()], RequestKind::NativeDelete);
        assert_eq!(lines(&release(), &one, Form::Native), native);
        assert_eq!(lines(&Command::ForceDelete, &one, Form::Native), native);
        assert_eq!(lines(&release(), &fenced(7), Form::Native), native);
        let each = ["a", "b"].map(|key| line.replace(" k ", &format!(" {key} ")));
        let native = (each.to_vec(), RequestKind::NativeDelete);
        assert_eq!(lines(&release(), &two, Form::Native), native);
        for (command, about, form) in [
            (&release(), &one, Form::Hash),
            (&release(), &two, Form::Hash),
            (&release(), &fenced(9), Form::Native),
            (&cool_down(until(500)), &one, Form::Native),
        ] {
            let (script, request) = lines(command, about, form);
            let [script] = script.as_slice() else { panic!("{script:?}") };
            assert!(script.starts_with("EVALSHA") && request == RequestKind::Release, "{script}");
        }
    }
}

#[test]
fn multiple_keys_are_set_by_native_command_if_available() {
    let ttl = ms(9_000);
    let can = Capabilities { tracks: true, deletes: None, sets_all: true };
    let lines = |command: &Command, about: &Fixture, form| {
        let (bytes, shape) = written_where(command, about, form, can);
        let commands: Vec<_> = parsed(&bytes).into_iter().map(shown).collect();
        (commands, shape.request)
    };
    let set = "MSETEX 2 a mine b mine NX PX 9000";
    for wants in [ConflictDetails::Nothing, ConflictDetails::Watch, ConflictDetails::WatchAndHolder]
    {
        let acquire = Command::Acquire { ttl, wants, any: None };
        let native = (vec![set.to_owned()], RequestKind::NativeAcquire);
        assert_eq!(lines(&acquire, &Fixture::keys(&["b", "a"]), Form::Native), native);
        for (form, about) in [
            (Form::Hash, Fixture::keys(&["a", "b"])),
            (Form::Native, Fixture::keys(&["a", "b"]).fenced(None)),
            (Form::Native, Fixture::keys(&["k"])),
        ] {
            let (commands, request) = lines(&acquire, &about, form);
            assert!(commands.iter().all(|line| !line.starts_with("MSETEX")), "{commands:?}");
            assert_eq!(request, RequestKind::Acquire);
        }
    }
    let repair = Command::Repair { until: until(8_000) };
    let (script, _) = lines(&repair, &Fixture::keys(&["a", "b"]), Form::Native);
    assert_eq!(script, ["EVALSHA acquire 2 a b mine 8000"], "some keys may hold the value");
}

#[test]
fn long_values_of_many_keys_are_sent_once() {
    let can = Capabilities { tracks: false, deletes: Some(NativeDelete::DelIfEq), sets_all: true };
    let names: Vec<_> = (0..16).map(|name| name.to_string()).collect();
    let about = Fixture::keys(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (length, is_native) in [(4_096, true), (4_097, false)] {
        let value = Value::of(&vec![b'x'; length]);
        let about = Fixture { value, keys: about.keys.clone(), fence: None, sharing: None };
        let acquire =
            Command::Acquire { ttl: ms(9_000), wants: ConflictDetails::Nothing, any: None };
        let (bytes, acquire) = written_where(&acquire, &about, Form::Native, can);
        let release = Command::Release { cooling: None };
        let (_, release) = written_where(&release, &about, Form::Native, can);
        let natives = (RequestKind::NativeAcquire, RequestKind::NativeDelete);
        assert_eq!((acquire.request, release.request) == natives, is_native, "{length}");
        assert!(bytes.len() < MAX_REPEATED_VALUES + 1_000);
    }
}

#[test]
fn one_of_several_keys_is_acquired_by_script() {
    let (ttl, abc) = (ms(9_000), Fixture::keys(&["a", "b", "c"]));
    let any = |wants, watches| {
        let any = Some(AnyKey { first: 1, watches });
        Command::Acquire { ttl, wants, any }
    };
    let script = "EVALSHA acquire_any 3 a b c mine 9000 2 0";
    expect(&any(ConflictDetails::Nothing, false), &abc, true, &[script], (0, 0, 0));
    let lines = ["CLIENT CACHING YES", "EVALSHA acquire_any 3 a b c mine 9000 2 1"];
    expect(&any(ConflictDetails::WatchAndHolder, true), &abc, true, &lines, (1, 0, 0));
    let script =
        "EVALSHA acquire_any 4 a b a#quorlock:token:{a} b#quorlock:token:{b} mine 9000 2 0 7 60000";
    let fenced = Fixture::keys(&["a", "b"]).fenced(None);
    expect(&any(ConflictDetails::Nothing, false), &fenced, true, &[script], (0, 0, 0));
}
