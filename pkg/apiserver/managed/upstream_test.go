package managed_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	docs "podium/api/openapi"
	"podium/pkg/apiserver/managed"
	"podium/pkg/scheme"
)

// one is the conversion, the defaults and the creation of a kind with one version.
type one struct {
	runtime.ObjectConvertor
	*scheme.Kind
}

func (o one) Default(runtime.Object) {}
func (o one) New(schema.GroupVersionKind) (runtime.Object, error) {
	obj := o.Kind.New()
	obj.GetObjectKind().SetGroupVersionKind(o.GroupVersionKind)
	return obj, nil
}
func (o one) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// upstream is the field manager of k8s.io/apimachinery for a kind.
func upstream(t testing.TB, k *scheme.Kind, types managedfields.TypeConverter, reset ...string) *managedfields.FieldManager {
	t.Helper()
	paths := fieldpath.NewSet()
	for _, name := range reset {
		paths.Insert(fieldpath.MakePathOrDie(name))
	}
	gv := k.GroupVersion()
	m, err := managedfields.NewDefaultFieldManager(types, one{nil, k}, one{nil, k}, one{nil, k}, k.GroupVersionKind, gv, "",
		map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(gv.String()): fieldpath.NewExcludeSetFilter(paths)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// path returns the path of the OpenAPI document of a group version.
func path(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

func typesOf(t testing.TB, gv schema.GroupVersion) (managedfields.TypeConverter, managed.Schemas) {
	t.Helper()
	var doc spec3.OpenAPI
	text := docs.V3(path(gv))
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	types, err := managedfields.NewTypeConverter(doc.Components.Schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	own := managed.Schemas{}
	if err := own.Read(text); err != nil {
		t.Fatal(err)
	}
	return types, own
}

// fill sets random fields of v.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.Unix(r.Int64N(3), 0)
		return
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.Unix(0, r.Int64N(3)*1000))
		return
	case *resource.Quantity:
		*p = resource.MustParse(fmt.Sprint(r.IntN(3), "Mi"))
		return
	case *intstr.IntOrString:
		*p = intstr.Parse([]string{"1", "2", "a"}[r.IntN(3)])
		return
	case *runtime.RawExtension:
		p.Raw = fmt.Appendf(nil, `{"a":{"b":%d}}`, r.IntN(2))
		return
	case *metav1.FieldsV1, *metav1.TypeMeta, *[]metav1.ManagedFieldsEntry:
		return
	}
	if reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[json.Marshaler]()) || depth > 9 {
		return
	}
	few := func() bool { return r.IntN(2+depth) == 0 }
	switch v.Kind() {
	case reflect.Pointer:
		if few() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && (depth == 0 || few()) {
				fill(r, v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{byte(r.IntN(3))})
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
			for name := range keys {
				if f := v.Index(i); f.Kind() == reflect.Struct && f.FieldByName(name).IsValid() {
					fill(r, f.FieldByName(name), depth+1)
				}
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth+1)
			fill(r, value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString([]string{"a", "b", `q"<é`, "a.b/c"}[r.IntN(4)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(3))
	}
}

// keys are fields that identify items of lists.
var keys = map[string]bool{"Name": true, "Type": true, "UID": true, "ContainerPort": true, "Protocol": true, "Port": true, "Key": true, "MountPath": true, "IP": true}

// random returns an object as the store would return it.
func random(t testing.TB, r *rand.Rand, k *scheme.Kind) scheme.Object {
	obj := k.New()
	fill(r, reflect.ValueOf(obj).Elem(), 0)
	obj.SetName("x")
	return stored(t, k, obj)
}

func stored(t testing.TB, k *scheme.Kind, obj scheme.Object) scheme.Object {
	t.Helper()
	data, err := scheme.BareProto(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := k.New()
	if err := out.(interface{ Unmarshal([]byte) error }).Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return out
}

// mutate returns obj with some of its fields replaced by those of other.
func mutate(t testing.TB, r *rand.Rand, k *scheme.Kind, obj, other scheme.Object) scheme.Object {
	out := stored(t, k, obj)
	mix(r, reflect.ValueOf(out).Elem(), reflect.ValueOf(stored(t, k, other)).Elem(), 0)
	out.SetName("x")
	return out
}

func mix(r *rand.Rand, a, b reflect.Value, depth int) {
	if _, opaque := a.Addr().Interface().(json.Marshaler); a.Kind() != reflect.Struct || opaque {
		a.Set(b)
		return
	}
	for i := range a.NumField() {
		if r.IntN(3) == 0 && a.Field(i).CanSet() {
			mix(r, a.Field(i), b.Field(i), depth+1)
		}
	}
}

// entries renders managed fields without times.
func entries(obj scheme.Object) string {
	var out []string
	for _, m := range obj.GetManagedFields() {
		out = append(out, fmt.Sprintf("%s %s %s %s %s\n  %s", m.Manager, m.Operation, m.APIVersion, m.FieldsType, m.Subresource, m.FieldsV1.Raw))
	}
	slices.Sort(out) // upstream orders them by time
	return strings.Join(out, "\n")
}

// TestAsUpstream writes random objects of all kinds by random managers, and expects
// the bytes that upstream's field manager writes.
func TestAsUpstream(t *testing.T) {
	s := scheme.New()
	read := map[schema.GroupVersion]func() (managedfields.TypeConverter, managed.Schemas){}
	for _, k := range s.Kinds() {
		gv := k.GroupVersion()
		if read[gv] == nil {
			types, own := typesOf(t, gv)
			read[gv] = func() (managedfields.TypeConverter, managed.Schemas) { return types, own }
		}
		t.Run(k.Kind, func(t *testing.T) {
			types, own := read[gv]()
			compare(t, k, upstream(t, k, types, "status"), own.Type(k.GroupVersionKind))
		})
	}
}

func compare(t *testing.T, k *scheme.Kind, theirs *managedfields.FieldManager, typ *managed.Type) {
	if typ == nil {
		t.Fatal("no schema")
	}
	r := rand.New(rand.NewPCG(1, uint64(len(k.Kind))))
	compared := 0
	defer func() {
		if compared < 10 {
			t.Errorf("only %d writes were compared", compared)
		}
	}()
	for range 8 {
		var live scheme.Object
		for step := range 6 {
			next := random(t, r, k)
			if live != nil {
				next = mutate(t, r, k, live, next)
				next.SetManagedFields(live.GetManagedFields())
			}
			manager := string(rune('a' + r.IntN(3)))
			want := stored(t, k, next)
			old := k.New()
			if live != nil {
				old = stored(t, k, live)
				old.SetUID("u")
			}
			for _, obj := range []scheme.Object{old, want} {
				obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
			}
			if _, err := theirs.Update(old, want, manager); err != nil {
				live = nil
				break // duplicate or missing keys, which validation refuses
			}
			w := managed.Write{
				Manager: manager, APIVersion: k.GroupVersion().String(), Create: live == nil, Untracked: managed.Without("status"),
				Pair: func(string) (managed.Pair, error) {
					return managed.Pair{Type: typ, Old: reflect.ValueOf(old).Elem(), New: reflect.ValueOf(next).Elem()}, nil
				},
			}
			fields, err := w.Fields(old.GetManagedFields(), next.GetManagedFields())
			if err != nil {
				t.Fatal(err)
			}
			next.SetManagedFields(fields)
			if diff := cmp.Diff(entries(want), entries(next)); diff != "" {
				before, _ := json.Marshal(old)
				after, _ := json.Marshal(next)
				t.Fatalf("step %d: %s\nold %s\nnew %s", step, diff, before, after)
			}
			live = next
			compared++
		}
	}
}
