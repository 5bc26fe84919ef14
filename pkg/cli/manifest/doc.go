// Package manifest reads the objects that people keep in files.
package manifest
