// Package describe writes an object for people: what it is, how it is, and what
// happened to it.
package describe
