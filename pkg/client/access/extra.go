package access

import "slices"

// Extra converts the extra fields of a user between API groups, each of which has its
// own type for the same lists of strings. It returns nil for an empty map.
func Extra[To, From ~[]string](in map[string]From) map[string]To {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]To, len(in))
	for key, values := range in {
		out[key] = To(slices.Clone(values))
	}
	return out
}
