//! Checks the names of files and directories.

use crate::sources::all_sources;

const VAGUE_NAMES: [&str; 5] = ["util", "common", "types", "helpers", "core"];

#[test]
fn file_names_describe_the_content() {
    for source in all_sources() {
        for part in source.path.iter().filter_map(|part| part.to_str()) {
            let name = part.trim_end_matches(".rs");
            let is_bench = source.path.starts_with("benches");
            let is_vague = VAGUE_NAMES.contains(&name) && !(is_bench && name == "core");
            assert!(!is_vague, "{}: rename {name} after its content", source.path.display());
        }
    }
}
