use answer::*;

fn main() {
    let mut upload = Upload::<Receiving>::begin("model.gguf", 4);
    let _written = upload.write(b"GG");
    let _published = upload.publish();
}
