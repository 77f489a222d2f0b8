// Package httpapi is the HTTP surface: routes, caller identification, problem
// documents. It is the only importer of gin.
//
// Public (public.go) is what agents reach: well-known documents, the translate
// endpoint, the native endpoints. Admin (admin.go) is what operators and scrapers
// reach. Handlers translate between HTTP and values; every decision is made on
// the pipeline (package gateway) or in the directory.
package httpapi
