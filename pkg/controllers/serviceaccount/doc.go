// Package serviceaccount creates the service account "default" in every namespace.
package serviceaccount
