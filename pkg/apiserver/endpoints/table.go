package endpoints

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// respondTable answers with a Table, which kubectl get prints.
func (c *call) respondTable(code int, f wire.Format, rows []shown, meta metav1.ListMeta) error {
	t, err := c.table(f, rows, meta, true)
	if err != nil {
		return err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode table: %w", err)
	}
	if f.Media == scheme.YAML || f.Pretty {
		return writeReadable(c.w, c.r, f, text)
	}
	wire.WriteText(c.w, c.r, code, scheme.JSON, append(text, '\n'))
	return nil
}

// table builds a Table, with column definitions if head is set.
func (c *call) table(f wire.Format, rows []shown, meta metav1.ListMeta, head bool) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(c.query().Get("includeObject"))
	errs := metavalidation.ValidateTableOptions(&metav1.TableOptions{IncludeObject: include})
	if err := invalidOptions("TableOptions", errs); err != nil {
		return nil, err
	}
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: f.As.Kind, APIVersion: f.As.GroupVersion().String()},
		ListMeta: meta,
		Rows:     make([]metav1.TableRow, len(rows)),
	}
	if head {
		t.ColumnDefinitions = c.res.columns()
	}
	now := c.res.api.Now()
	for i, r := range rows {
		shown, err := c.rowObject(f, include, r)
		if err != nil {
			return nil, err
		}
		cells, err := c.res.cells(r.Object(), now)
		if err != nil {
			return nil, err
		}
		t.Rows[i] = metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Raw: shown}}
	}
	return t, nil
}

// rowObject returns the encoded object of a row, as includeObject requires:
// nothing, the object, or its metadata (the default).
func (c *call) rowObject(f wire.Format, include metav1.IncludeObjectPolicy, r shown) ([]byte, error) {
	switch include {
	case metav1.IncludeNone:
		return nil, nil
	case metav1.IncludeObject:
		bare, err := r.JSON()
		if err != nil {
			return nil, err
		}
		return scheme.TypedJSON(c.res.gvk(), bare.Bytes()), nil
	}
	bare, err := partial{r, c.res.text}.JSON()
	if err != nil {
		return nil, err
	}
	return scheme.TypedJSON(f.As.GroupVersion().WithKind(wire.PartialObjectMetadata), bare.Bytes()), nil
}

// columns returns the columns of the version, or name and creation time if it has
// none.
func (v *version) columns() []metav1.TableColumnDefinition {
	if v.rules.Row != nil {
		return v.rules.Columns
	}
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
	}
}

// cells returns the row of an object of the storage version.
func (v *version) cells(obj scheme.Object, now time.Time) ([]any, error) {
	if v.rules.Row == nil {
		return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}, nil
	}
	if v.ownRules() {
		var err error
		if obj, err = v.fromStorage(obj); err != nil {
			return nil, err
		}
	}
	return v.rules.Row(obj, now), nil
}
