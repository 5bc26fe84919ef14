// Package logs reads the log files of containers in the format of CRI runtimes:
// one record per line, with its time, its stream and whether the line continues.
package logs
