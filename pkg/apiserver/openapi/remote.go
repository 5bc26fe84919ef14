package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Remote are the documents of a group version that another server serves, as JSON; nil:
// none. V2 may describe more than the group version.
type Remote struct{ V2, V3 []byte }

func (r Remote) equal(other Remote) bool {
	return bytes.Equal(r.V2, other.V2) && bytes.Equal(r.V3, other.V3)
}

// withRemote returns base with what the v2 documents say about their group versions.
func (s *Server) withRemote(base *document, remote map[string]Remote) *document {
	described := maps.Clone(remote)
	maps.DeleteFunc(described, func(_ string, r Remote) bool { return r.V2 == nil })
	if len(described) == 0 {
		return base
	}
	merged := sync.OnceValue(func() []byte {
		text, err := s.merge(base.load(), described)
		if err != nil {
			s.log.Error("merge the OpenAPI v2 documents of other servers failed", "err", err)
			return base.load()
		}
		return text
	})
	return newDocument(merged, nil, parseV2)
}

// merge merges v2 documents into base, in the order of their paths. It skips and logs
// those that cannot be merged. A definition that has the name of another one gets a new
// name.
func (s *Server) merge(base []byte, remote map[string]Remote) ([]byte, error) {
	all := &spec.Swagger{}
	if err := json.Unmarshal(base, all); err != nil {
		return nil, fmt.Errorf("decode the own document: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(remote)) {
		if err := mergeOne(all, path, remote[path].V2); err != nil {
			s.log.Warn("merge an OpenAPI v2 document failed", "path", path, "err", err)
		}
	}
	return json.Marshal(all)
}

// mergeOne merges what a document says about the group version at path. A document that
// makes the library panic is an error.
func mergeOne(into *spec.Swagger, path string, text []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the document is not consistent: %v", r)
		}
	}()
	other := &spec.Swagger{}
	if err := json.Unmarshal(text, other); err != nil {
		return err
	}
	if other.Paths == nil {
		return nil
	}
	own := aggregator.FilterSpecByPathsWithoutSideEffects(other, []string{"/" + path + "/"})
	return aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(into, own)
}
