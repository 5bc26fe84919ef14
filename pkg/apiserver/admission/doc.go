// Package admission is the last word on a write before it is stored: a list
// of functions that may change the object, and one of functions that may only
// refuse it.
package admission
