// Package help holds the --help texts of all daemons: the names, defaults and
// descriptions of their flags.
package help
