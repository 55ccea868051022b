// Products by cuBLASLt, for the device profile. Its library is opened when a model asks for that.
#include "runtime/kernels/cuda/driver.h"
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

bool pin_products(Device *, const DeviceShape *, size_t, char (&)[kDeviceIdBytes],
                  DeviceError *error) {
    tell(error, DeviceError::unavailable, "cuBLASLt is not used yet");
    return false;
}

} // namespace

void pinned_product(DeviceQueue *queue, const DeviceProduct &) {
    tell(&queue->error, DeviceError::failed, "no products were pinned");
}

void add_pinned(DeviceTable &table) {
    table.pin_products = pin_products;
}

} // namespace stasis::kernels::device
