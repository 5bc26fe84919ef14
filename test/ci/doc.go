// Package ci checks what continuous integration runs, ours and the example for
// users, against what the repository has: make targets, commands with their
// flags, files.
package ci
