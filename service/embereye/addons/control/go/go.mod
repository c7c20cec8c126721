module embereye.dev/clients/go

go 1.24.0

require google.golang.org/protobuf v1.36.11
