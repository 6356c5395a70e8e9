//! Samples one-line defects of a crate and puts them into a scratch copy of the sources, each behind
//! a switch of its own. One build then serves every defect: the environment variable
//! `TRANSOM_MUTANT` says which one is switched on. `scripts/mutants --sample` makes the copy, builds
//! it, and runs the crate's tests once for each.

mod sites;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Serialize;

use crate::sites::{Site, sites};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Put sampled one-line defects into a scratch copy of the sources
#[derive(Debug, Parser)]
struct Args {
    /// Files and folders of the scratch copy whose sources may get defects
    #[arg(required = true)]
    places: Vec<PathBuf>,
    /// How many defects
    #[arg(long, default_value_t = 40)]
    count: usize,
    /// Which ones: the same seed takes the same ones from the same sources
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first defect
    #[arg(long, default_value_t = 1)]
    first: usize,
    /// Numbers of defects to leave out, because they do not compile
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
}

/// A defect, as it is listed on standard output.
#[derive(Debug, Serialize)]
struct Mutant<'a> {
    number: usize,
    file: &'a Path,
    line: usize,
    what: &'a str,
    /// The line as it was.
    source: &'a str,
}

fn main() -> Outcome {
    let args = Args::parse();
    let mut files = Vec::new();
    for place in &args.places {
        collect(place, &mut files)?;
    }
    files.sort();
    let sources = files
        .iter()
        .map(|file| Ok((file.as_path(), fs::read_to_string(file)?)))
        .collect::<Outcome<Vec<_>>>()?;
    let mut candidates = Vec::new();
    for (index, (file, source)) in sources.iter().enumerate() {
        let found = sites(source).map_err(|why| format!("{}: {why}", file.display()))?;
        candidates.extend(found.into_iter().map(|site| (index, site)));
    }
    let mut chosen = sample(candidates, args.count, args.seed);
    // Backwards within a file, so that the places before an edit stay where they are.
    chosen.sort_by_key(|(file, site)| (*file, site.range.start));
    let numbered = chosen.into_iter().enumerate().map(|(index, place)| (args.first + index, place));
    let mut edited: Vec<String> = sources.iter().map(|(_, source)| source.clone()).collect();
    let mut mutants = Vec::new();
    for (number, (index, site)) in numbered.rev() {
        let Some((file, source)) = sources.get(index) else { continue };
        if args.without.contains(&number) {
            continue;
        }
        if let Some(text) = edited.get_mut(index) {
            let on = format!("::mutant_switch::on({number})");
            text.replace_range(site.range.clone(), &site.text(source, &on));
        }
        mutants.push((number, *file, source, site));
    }
    for ((file, source), edited) in sources.iter().zip(&edited) {
        if source != edited {
            fs::write(file, edited)?;
        }
    }
    for (number, file, source, site) in mutants.iter().rev() {
        let source = source.lines().nth(site.line - 1).unwrap_or_default().trim();
        let mutant = Mutant { number: *number, file, line: site.line, what: &site.what, source };
        println!("{}", serde_json::to_string(&mutant)?);
    }
    Ok(())
}

/// Every Rust source below `place`, without files of tests.
fn collect(place: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    if place.is_dir() {
        for entry in fs::read_dir(place)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default();
            if name != "tests" && name != "testing" {
                collect(&path, files)?;
            }
        }
    } else if place.extension().is_some_and(|end| end == "rs") {
        files.push(place.to_owned());
    }
    Ok(())
}

/// `count` of the candidates, none of which overlaps another one of the same file.
fn sample(mut candidates: Vec<(usize, Site)>, count: usize, seed: u64) -> Vec<(usize, Site)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut chosen = Vec::<(usize, Site)>::new();
    while chosen.len() < count && !candidates.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state % candidates.len() as u64) as usize;
        let (file, site) = candidates.swap_remove(at);
        let apart = |(other, taken): &(usize, Site)| {
            *other != file
                || taken.range.end <= site.range.start
                || site.range.end <= taken.range.start
        };
        if chosen.iter().all(apart) {
            chosen.push((file, site));
        }
    }
    chosen
}
