package openapi

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed v2.json v3
var documents embed.FS

// V2 is the whole API as swagger, in JSON.
func V2() []byte {
	data, _ := documents.ReadFile("v2.json")
	return data
}

// V3 is the OpenAPI 3 document of one path ("api/v1", "apis/apps/v1"), in
// JSON; nil if there is none.
func V3(path string) []byte {
	data, err := documents.ReadFile("v3/" + path + ".json")
	if err != nil {
		return nil
	}
	return data
}

// Paths are those that V3 has a document of, in order.
func Paths() []string {
	var paths []string
	// An embedded tree is walked without errors.
	_ = fs.WalkDir(documents, "v3", func(name string, _ fs.DirEntry, _ error) error {
		if path, ok := strings.CutSuffix(strings.TrimPrefix(name, "v3/"), ".json"); ok {
			paths = append(paths, path)
		}
		return nil
	})
	slices.Sort(paths)
	return paths
}
