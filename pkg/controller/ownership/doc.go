// Package ownership decides which objects a controller owns: those whose controller owner
// reference names it and whose labels match its selector, those to adopt and those to
// release. The decision is a pure function; the resulting patches contain the UIDs of the
// objects, so that a new object of the same name is never changed.
package ownership
