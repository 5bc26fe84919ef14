// Package flowcontrol bounds how many requests are worked on at a time, so
// that too many of them wait outside and not inside.
package flowcontrol
