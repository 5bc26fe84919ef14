package registry

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

// controllerRevisions are states of other objects that their controllers keep.
func controllerRevisions(k *scheme.Kind, _ Config) *Kind {
	return Of[*appsv1.ControllerRevision]{
		Validate: validateControllerRevision,
		Columns: columns(
			column("Controller", "Controller of the object"),
			number("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
			ageColumn(),
		),
		Row: func(r *appsv1.ControllerRevision, now time.Time) []any {
			return []any{r.Name, controllerName(r), r.Revision, age(r.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// controllerName returns the controller of obj as "kind.group/name".
func controllerName(obj metav1.Object) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return "<none>"
	}
	return strings.ToLower(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind().String()) + "/" + ref.Name
}

func validateControllerRevision(new, old *appsv1.ControllerRevision) field.ErrorList {
	at := field.NewPath("data")
	errs := apivalidation.ValidateNonnegativeField(new.Revision, field.NewPath("revision"))
	data, ok := parseJSON(new.Data.Raw)
	switch {
	case len(new.Data.Raw) == 0 || ok && data == nil:
		return append(errs, field.Required(at, "data is mandatory"))
	case !ok:
		return append(errs, field.Invalid(at, field.OmitValueType{}, "must be JSON"))
	}
	if old == nil {
		return errs
	}
	// A patch may change the order of the fields.
	if before, _ := parseJSON(old.Data.Raw); !reflect.DeepEqual(data, before) {
		errs = append(errs, field.Invalid(at, string(new.Data.Raw), apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// parseJSON returns the value of a JSON text; ok is false if raw is none.
func parseJSON(raw []byte) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if !json.Valid(raw) || d.Decode(&value) != nil {
		return nil, false
	}
	return value, true
}
