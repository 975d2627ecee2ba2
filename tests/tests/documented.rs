//! What the documentation names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use warmroute_e2e::workspace;

/// The names of all test functions below a directory.
fn tests_below(dir: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            tests_below(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let functions = fs::read_to_string(&path)?;
            let name = |line: &str| Some(line.split_once("fn ")?.1.split_once('(')?.0.to_owned());
            names.extend(functions.lines().filter_map(name));
        }
    }
    Ok(())
}

#[test]
fn each_failure_mode_names_a_test_that_exists() -> Result<()> {
    let root = workspace::root();
    let mut known = BTreeSet::new();
    for dir in ["tests/tests", "src", "crates"] {
        tests_below(&root.join(dir), &mut known)?;
    }
    let modes = fs::read_to_string(root.join("docs/failure-modes.md"))?;
    let rows = modes.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what |"));
    let mut count = 0;
    for row in rows {
        let cell = row.trim_end_matches(['|', ' ']).rsplit_once('|').context("no cells")?.1;
        for named in cell.split('`').skip(1).step_by(2) {
            let exists = match named.rsplit_once("::") {
                Some((_, function)) => known.contains(function),
                None => root.join(named).exists(),
            };
            ensure!(exists, "no test is called {named}");
            count += 1;
        }
    }
    ensure!(count >= 30, "{count} tests are named");
    Ok(())
}
