module stasis.example/stasis.git/bindings/go

go 1.19
