package registry

import (
	"context"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// Bindings grant a role to subjects, in their namespace or cluster-wide. The role
// reference is immutable; a change of the subjects requires the permission to bind
// the role.

func roleBindings(k *scheme.Kind, cfg Config) *Kind {
	return Of[*rbacv1.RoleBinding]{
		Default: func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
		Prepare: func(ctx context.Context, _ Backend, new, old *rbacv1.RoleBinding) error {
			if old != nil && old.RoleRef == new.RoleRef && equality.Semantic.DeepEqual(old.Subjects, new.Subjects) {
				return nil
			}
			return cfg.prepareBinding(ctx, "rolebindings", new.Namespace, new.Name, new.RoleRef)
		},
		ValidateName: validateRBACName,
		Validate: func(new, old *rbacv1.RoleBinding) field.ErrorList {
			errs := validateRoleRef(&new.RoleRef, "Role", "ClusterRole")
			errs = append(errs, validateSubjects(new.Subjects, true)...)
			if old != nil {
				errs = append(errs, validateSameRole(new.RoleRef, old.RoleRef)...)
			}
			return errs
		},
		Columns: columns(bindingColumns()...),
		Row: func(b *rbacv1.RoleBinding, now time.Time) []any {
			return bindingRow(&b.ObjectMeta, &b.RoleRef, b.Subjects, now)
		},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func clusterRoleBindings(k *scheme.Kind, cfg Config) *Kind {
	return Of[*rbacv1.ClusterRoleBinding]{
		Default: func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
		Prepare: func(ctx context.Context, _ Backend, new, old *rbacv1.ClusterRoleBinding) error {
			if old != nil && old.RoleRef == new.RoleRef && equality.Semantic.DeepEqual(old.Subjects, new.Subjects) {
				return nil
			}
			return cfg.prepareBinding(ctx, "clusterrolebindings", "", new.Name, new.RoleRef)
		},
		ValidateName: validateRBACName,
		Validate: func(new, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			errs := validateRoleRef(&new.RoleRef, "ClusterRole")
			errs = append(errs, validateSubjects(new.Subjects, false)...)
			if old != nil {
				errs = append(errs, validateSameRole(new.RoleRef, old.RoleRef)...)
			}
			return errs
		},
		Columns: columns(bindingColumns()...),
		Row: func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
			return bindingRow(&b.ObjectMeta, &b.RoleRef, b.Subjects, now)
		},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	orDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			orDefault(&s.APIGroup, rbacv1.GroupName)
		}
	}
}

func validateRoleRef(ref *rbacv1.RoleRef, kinds ...string) field.ErrorList {
	path := field.NewPath("roleRef")
	var errs field.ErrorList
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	known := false
	for _, kind := range kinds {
		known = known || kind == ref.Kind
	}
	if !known {
		errs = append(errs, field.NotSupported(path.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), ""))
	}
	return append(errs, fieldcheck.Invalid(validateRBACName(ref.Name, false), path.Child("name"), ref.Name)...)
}

func validateSameRole(new, old rbacv1.RoleRef) field.ErrorList {
	if new == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), new, "cannot change roleRef")}
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

// validateSubject validates one subject. In a RoleBinding, a service account
// without a namespace is in the namespace of the binding.
func validateSubject(s *rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, fieldcheck.Invalid(apivalidation.ValidateServiceAccountName(s.Name, false), path.Child("name"), s.Name)...)
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}

func bindingColumns() []metav1.TableColumnDefinition {
	doc := rbacv1.RoleBinding{}.SwaggerDoc()
	return append([]metav1.TableColumnDefinition{column("Role", doc["roleRef"]), ageColumn()}, wide(
		column("Users", "Users in the binding"),
		column("Groups", "Groups in the binding"),
		column("ServiceAccounts", "ServiceAccounts in the binding"))...)
}

func bindingRow(m *metav1.ObjectMeta, ref *rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			name := s.Name
			if s.Namespace != "" {
				name = s.Namespace + "/" + s.Name
			}
			accounts = append(accounts, name)
		}
	}
	return []any{m.Name, ref.Kind + "/" + ref.Name, age(m.CreationTimestamp, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}
