// Package logs reads containers' log files, in the format that CRI runtimes
// write: a line each, with its time, its stream, and whether more of it follows.
package logs
