// Package managed tracks which client set which field of an object: it keeps
// metadata.managedFields up to date through creates, updates and patches, with the
// results of upstream's field manager. Apply requests are merged by upstream's
// library, k8s.io/apimachinery/pkg/util/managedfields.
//
// What makes it cheap: two objects are compared by one walk over their Go values,
// which writes the fields that differ as FieldsV1, in its canonical order. The new
// entry of a create is these bytes. Entries are decoded only where fields could move
// between managers, and decoded sets are cached by their bytes. An entry whose fields
// stay the same keeps its bytes.
package managed
