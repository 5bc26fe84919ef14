// Package cli is the podium command: one file a subcommand, each an options
// struct, a parser and a run function.
package cli
