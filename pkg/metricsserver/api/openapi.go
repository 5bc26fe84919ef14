package api

import (
	"crypto/sha256"
	_ "embed" // the documents
	"encoding/hex"
	"strings"
)

// The OpenAPI documents of both versions, which `go run ./hack/openapi` writes.
var (
	//go:embed openapi/v2.json
	openAPIV2 []byte
	//go:embed openapi/v3.json
	openAPIV3 []byte
)

// openAPIIndex returns the index of the documents of version 3. The hash in the URL changes
// with the document.
func openAPIIndex() any {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	return map[string]map[string]entry{"paths": {
		strings.TrimPrefix(root, "/"): {"/openapi/v3" + root + "?hash=" + strings.ToUpper(hash(openAPIV3))},
	}}
}

func hash(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}
