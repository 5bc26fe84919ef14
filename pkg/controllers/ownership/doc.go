// Package ownership says which objects a controller owns: those that name it
// in their ownerReferences and match its selector, those it may adopt and those
// it must let go. The decision is pure; the patches that carry it out name the
// uids they were decided on, so that a namesake is never touched.
package ownership
