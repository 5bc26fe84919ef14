// Package serviceaccount gives every namespace its service account "default".
package serviceaccount
