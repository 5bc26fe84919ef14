package fieldcheck

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WebhookClient validates where a webhook is.
func WebhookClient(c *registration.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhookURL(*c.URL, at.Child("url"))
	}
	s := c.Service
	at = at.Child("service")
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if s.Port != nil {
		if messages := validation.IsValidPortNum(int(*s.Port)); len(messages) > 0 {
			errs = append(errs, field.Invalid(at.Child("port"), *s.Port, "port is not valid: "+strings.Join(messages, ", ")))
		}
	}
	if s.Path != nil {
		errs = append(errs, webhookPath(*s.Path, at.Child("path"))...)
	}
	return errs
}

func webhookURL(text string, at *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

func webhookPath(text string, at *field.Path) field.ErrorList {
	switch {
	case text == "" || text == "/":
		return nil
	case text == "//":
		return field.ErrorList{field.Invalid(at, text, "segment[0] may not be empty")}
	case text[0] != '/':
		return field.ErrorList{field.Invalid(at, text, "must start with a '/'")}
	}
	var errs field.ErrorList
	for i, step := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		segment := "segment[" + strconv.Itoa(i) + "]"
		if step == "" {
			errs = append(errs, field.Invalid(at, text, segment+" may not be empty"))
			continue
		}
		for _, m := range validation.IsDNS1123Subdomain(step) {
			errs = append(errs, field.Invalid(at, text, segment+": "+m))
		}
	}
	return errs
}

// ReviewVersions checks that the server knows one of the versions of AdmissionReview or
// ConversionReview. required is the text for an empty list.
func ReviewVersions(versions []string, required string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, required)}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, Invalid(validation.IsDNS1035Label(v), at.Index(i), v)...)
	}
	if !slices.Contains(versions, "v1") && !slices.Contains(versions, "v1beta1") {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}
