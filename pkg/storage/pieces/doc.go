// Package pieces keeps encoded objects that are alike in less memory. More than half of an
// object's encoding can be its managedFields, and these are nearly the same in all objects that
// the same programs write.
package pieces
