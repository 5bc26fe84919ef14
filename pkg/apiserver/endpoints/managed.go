package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/apiserver/managed"
	"podium/pkg/scheme"
)

// managers are the field managers of a resource, which merge applied configurations.
// Other writes are tracked without them: see track.
type managers struct {
	mu    sync.Mutex
	made  map[managerKey]*managedfields.FieldManager
	types managedfields.TypeConverter // of all versions
}

type managerKey struct {
	gvk schema.GroupVersionKind
	sub string
}

var errNoSchema = errors.New("server-side apply is not available: the kind has no schema")

// fieldManager returns the field manager for writes in the version, to the object
// (sub "") or to a subresource. It is created on first use, because the schemas are
// large. It is safe for concurrent use.
func (v *version) fieldManager(sub string) (*managedfields.FieldManager, error) {
	m := &v.managers
	m.mu.Lock()
	defer m.mu.Unlock()
	key := managerKey{v.gvk(), sub}
	if f := m.made[key]; f != nil {
		return f, nil
	}
	types, err := v.typesLocked()
	if err != nil {
		return nil, err
	}
	c := convertor{v.api.Scheme.Scheme, v.resource}
	f, err := managedfields.NewDefaultCRDFieldManager(types, c, defaulter{v.resource}, c, v.gvk(), v.GroupVersion(), sub, v.resetFields(sub))
	if err != nil {
		return nil, fmt.Errorf("manage fields of %s: %w", v.Resource, err)
	}
	m.made[key] = f
	return f, nil
}

// types returns the schemas of the resource's versions. It is safe for concurrent
// use.
func (v *version) types() (managedfields.TypeConverter, error) {
	v.managers.mu.Lock()
	defer v.managers.mu.Unlock()
	return v.typesLocked()
}

// typesLocked is types for a caller that holds the lock of the managers.
func (v *version) typesLocked() (managedfields.TypeConverter, error) {
	m := &v.managers
	if m.types == nil {
		types, err := v.api.schemas.converter(v.resource)
		if err != nil {
			return nil, err
		}
		m.types, m.made = types, map[managerKey]*managedfields.FieldManager{}
	}
	return m.types, nil
}

// resetFields is resets for the field manager of upstream.
func (v *version) resetFields(sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	none := fieldpath.NewSet()
	for _, name := range v.resets(sub) {
		outer, inner, _ := strings.Cut(name, ".")
		path := fieldpath.MakePathOrDie(outer)
		if inner != "" {
			path = fieldpath.MakePathOrDie(outer, inner)
		}
		none.Insert(path)
	}
	if none.Empty() {
		return nil
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(v.gvk().GroupVersion().String()): fieldpath.NewExcludeSetFilter(none),
	}
}

// schemas reads type converters for field managers, and types for tracking, from the
// OpenAPI documents. It caches those of kinds with a Go type, and is safe for
// concurrent use.
type schemas struct {
	openAPI func(path string) []byte

	mu         sync.Mutex
	converters map[string]managedfields.TypeConverter // of kinds with a Go type, by their group versions
	tracked    map[schema.GroupVersion]managed.Schemas
}

func newSchemas(openAPI func(string) []byte) *schemas {
	return &schemas{openAPI: openAPI, converters: map[string]managedfields.TypeConverter{}, tracked: map[schema.GroupVersion]managed.Schemas{}}
}

// typeOf returns the type of a kind with a Go type, or nil if it has no schema.
func (s *schemas) typeOf(gvk schema.GroupVersionKind) (*managed.Type, error) {
	if s.openAPI == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gv := gvk.GroupVersion()
	if s.tracked[gv] == nil {
		s.tracked[gv] = managed.Schemas{}
		if text := s.openAPI(groupPath(gv)); len(text) > 0 {
			if err := s.tracked[gv].Read(text); err != nil {
				return nil, err
			}
		}
	}
	return s.tracked[gv].Type(gvk), nil
}

// converter returns the schemas of all versions of a resource. For a kind without a
// Go type and without a schema, the types are deduced from the objects.
func (s *schemas) converter(r *resource) (managedfields.TypeConverter, error) {
	if r.text && r.Schema == nil {
		return managedfields.NewDeducedTypeConverter(), nil
	}
	var paths []string
	for _, v := range r.versions {
		paths = append(paths, groupPath(v.gvk().GroupVersion()))
	}
	if r.text { // not cached: the documents change if the kind is removed and added again
		return s.read(paths, false)
	}
	key := strings.Join(paths, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.converters[key]; c != nil {
		return c, nil
	}
	c, err := s.read(paths, false)
	if err == nil {
		s.converters[key] = c
	}
	return c, err
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// read returns a type converter for the schemas in the documents of paths, or
// errNoSchema if there are none.
func (s *schemas) read(paths []string, keepUnknown bool) (managedfields.TypeConverter, error) {
	all := map[string]*spec.Schema{}
	for _, path := range paths {
		var text []byte
		if s.openAPI != nil {
			text = s.openAPI(path)
		}
		if len(text) == 0 {
			continue
		}
		var doc spec3.OpenAPI
		if err := json.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document of %s: %w", path, err)
		}
		if doc.Components != nil {
			maps.Copy(all, doc.Components.Schemas)
		}
	}
	if len(all) == 0 {
		return nil, errNoSchema
	}
	c, err := managedfields.NewTypeConverter(all, keepUnknown)
	if err != nil {
		return nil, fmt.Errorf("read the schemas of %v: %w", paths, err)
	}
	return c, nil
}

// defaulter sets the defaults of a merged object of the storage version.
type defaulter struct{ *resource }

// Default implements runtime.ObjectDefaulter.
func (d defaulter) Default(in runtime.Object) {
	if obj, ok := in.(scheme.Object); ok && obj.GetObjectKind().GroupVersionKind() == d.gvk() {
		d.setDefaults(obj)
	}
}
