package access

import "slices"

// Extra is what is known of a user beyond the name, in the type of another of
// the API's groups: each has its own for the same lists of strings.
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
