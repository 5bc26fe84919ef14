// Package usage keeps the last two samples of what nodes and containers use, and
// computes the CPU rate between them.
package usage
