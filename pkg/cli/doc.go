// Package cli implements the podium command. Each subcommand has a file with an
// options struct, a constructor that parses the flags and a run function.
package cli
