// Package views holds the informers that the controllers share, with the
// indexes they read them by. A controller never asks for all objects of a kind
// to handle one.
package views
