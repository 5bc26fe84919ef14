package registry

import (
	"strings"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

// storageVersionMigrations ask the controller to write all objects of a resource again,
// which stores them in the present version and with the present encryption key.
func storageVersionMigrations(k *scheme.Kind, _ Config) *Kind {
	life := lifecycle[*migrationv1.StorageVersionMigration, migrationv1.StorageVersionMigrationSpec, migrationv1.StorageVersionMigrationStatus]{
		parts: func(m *migrationv1.StorageVersionMigration) (*migrationv1.StorageVersionMigrationSpec, *migrationv1.StorageVersionMigrationStatus) {
			return &m.Spec, &m.Status
		},
		uncounted: true,
	}
	return Of[*migrationv1.StorageVersionMigration]{
		Prepare:      life.prepare,
		Validate:     validateMigration,
		Columns:      columns(column("Resource", "GroupResource to migrate"), column("Status", "Status of the migration")),
		Row:          migrationRow,
		Subresources: []*Subresource{life.status(k, nil, validateMigrationStatus)},
	}.Kind(k)
}

func validateMigration(new, old *migrationv1.StorageVersionMigration) field.ErrorList {
	path := field.NewPath("spec", "resource")
	var errs field.ErrorList
	if name := new.Spec.Resource.Resource; name == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else if texts := validation.IsDNS1035Label(name); len(texts) > 0 {
		errs = append(errs, field.Invalid(path.Child("resource"), name, strings.Join(texts, ",")))
	}
	if group := new.Spec.Resource.Group; group != "" {
		if texts := validation.IsDNS1123Subdomain(group); len(texts) > 0 {
			errs = append(errs, field.Invalid(path.Child("group"), group, strings.Join(texts, ",")))
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.Spec, old.Spec, field.NewPath("spec"))...)
	}
	return errs
}

// validateMigrationStatus checks that a migration ends once, in one way.
func validateMigrationStatus(new, old *migrationv1.StorageVersionMigration) field.ErrorList {
	path := field.NewPath("status")
	conditions, version := path.Child("conditions"), path.Child("resourceVersion")
	var errs field.ErrorList
	if rv := new.Status.ResourceVersion; rv != "" {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			errs = append(errs, field.Invalid(version, rv, err.Error()))
		}
	}
	errs = append(errs, metavalidation.ValidateConditions(new.Status.Conditions, conditions)...)
	if rv := old.Status.ResourceVersion; rv != "" && new.Status.ResourceVersion != rv {
		errs = append(errs, field.Invalid(version, new.Status.ResourceVersion, "field is immutable"))
	}
	if migrated(new, migrationv1.MigrationSucceeded) && migrated(new, migrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(conditions, new.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if migrated(old, migrationv1.MigrationSucceeded) && !migrated(new, migrationv1.MigrationSucceeded) {
		errs = append(errs, field.Invalid(conditions, new.Status.Conditions, "Success condition cannot be set to false once it is true"))
	}
	if migrated(old, migrationv1.MigrationFailed) && !migrated(new, migrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(conditions, new.Status.Conditions, "Failed condition cannot be set to false once it is true"))
	}
	return errs
}

func migrated(m *migrationv1.StorageVersionMigration, how migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(how))
}

func migrationRow(m *migrationv1.StorageVersionMigration, _ time.Time) []any {
	state := "Unknown"
	for _, c := range m.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			state = c.Type
		}
	}
	return []any{m.Name, m.Spec.Resource.String(), state}
}
